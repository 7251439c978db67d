"""A launch file judged: what runs, which rules it breaks, memory and time, what would be better, what explains a gap."""
