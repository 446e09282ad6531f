"""Small exact implementations of every form whose meaning can be checked, in torch."""
