"""moed's presets beside each other on one model: the same budgets, disks and prompts."""
