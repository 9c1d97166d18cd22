"""Small worlds in which everything about a policy is known, and what step advantages are worth there."""
