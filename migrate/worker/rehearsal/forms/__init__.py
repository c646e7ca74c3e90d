"""In which form a script takes its data: read off the lines at which made data failed it."""
