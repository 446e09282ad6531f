"""``asv publish`` with the same files in less time: reads, graphs and steps, each done once."""
