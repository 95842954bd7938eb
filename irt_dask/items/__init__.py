"""Items: what is known of each of them, whatever the method."""
