"""What the Plan view shows, worked out from a search: verdict, plans, the space around them, reasons."""
