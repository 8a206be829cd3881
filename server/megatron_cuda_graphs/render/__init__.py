"""Results as text: for people, for machines, for agents. Pure functions of the result models."""
