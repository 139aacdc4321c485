"""Charts: each declared once, drawn as SVG, PNG or a page that needs no network."""
