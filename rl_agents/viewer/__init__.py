"""The run explorer: pages over what runs leave behind, read-only, without torch and Ray (``run.py view``)."""
