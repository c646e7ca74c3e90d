"""From a captured program to what a device computes best: precisions, int8, fp8, layout, kernels, the portable graph."""
