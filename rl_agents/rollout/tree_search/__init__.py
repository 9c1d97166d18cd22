"""Tree search over states (3spo), which runs in the driver."""
