"""What a machine needs to measure for a team: device locks, its state, A/B runs, reproduction."""
