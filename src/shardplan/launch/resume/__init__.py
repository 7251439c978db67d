"""Whether a framework loads the checkpoint of one run under the plan of another."""
