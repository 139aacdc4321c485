"""Labels that people give to outputs, and what is still to be labelled."""
