"""Taking the traces: ranges around a running model's blocks, a toy of K3, drivers for a server."""
