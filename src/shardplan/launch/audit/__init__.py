"""A launch file judged: rules that it breaks, memory and time, what would be better, what explains a gap."""
