"""What private fits count."""
