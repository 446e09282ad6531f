"""A directory for PYTHONPATH: its sitecustomize.py runs at the start of every Python process."""
