"""What follows from rewards: the exact posterior and that of a dictionary, as values that are told and forget."""
