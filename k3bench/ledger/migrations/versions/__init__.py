"""The schema's history; file names and revision ids count upwards from 0001."""
