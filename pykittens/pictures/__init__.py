"""Pictures in SVG: where the elements of a type lie, and when the events of a launch happen."""
