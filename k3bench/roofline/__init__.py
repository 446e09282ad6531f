"""What every attention form costs, on hardware whose peaks are data: FLOPs, bytes, bounds."""
