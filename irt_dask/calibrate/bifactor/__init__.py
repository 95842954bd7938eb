"""A general ability and one for each block of items, by marginal maximum likelihood."""
