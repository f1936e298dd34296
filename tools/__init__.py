"""Tools around moed; what is imported is imported from the root of the repository."""
