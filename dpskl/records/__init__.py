"""Every pass over the data: rows, labels and losses. The only room that multiplies by ``X``."""
