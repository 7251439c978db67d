"""What one priced plan is made of in detail: bytes of chunks, what comes once a step, operators of a layer."""
