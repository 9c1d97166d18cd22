"""The run explorer (``run.py view``): read-only web pages about runs, without torch and Ray."""
