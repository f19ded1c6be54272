"""A posterior seen from many arms: their features, kept up to date, and what they bound."""
