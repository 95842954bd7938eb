"""Rasch methods: pairs of items, and conditional likelihood."""
