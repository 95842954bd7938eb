"""Joint maximum likelihood, on all persons or on coresets."""
