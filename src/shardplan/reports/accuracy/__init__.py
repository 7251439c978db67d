"""The accuracy of predictions as a record, and the page and figures made from it."""
