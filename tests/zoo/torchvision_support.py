"""Import torchvision beside a CPU build of torch.

The torchvision of the package index is built for CUDA. Beside CPU torch its C++ library does not load, and the import
stops at "operator torchvision::nms does not exist", because a Python file registers a kernel for an operator that nobody
declared. Models and transforms need none of those operators, so declaring the two is enough. `nms` and image decoding do
not work then. For tests only: the package itself never imports torchvision.
"""

from __future__ import annotations

import functools
import sys
from typing import Any

_SCHEMAS = {
    "nms": "nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
    "qnms": "qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
}


@functools.cache
def torchvision() -> Any:
    """The module, with models that can be built and run. Raises ImportError when it is not installed."""
    import torch

    library: Any = None
    # An environment for tests/open_cases declares them itself, at the import.
    declared = {"torchvision", "_torchvision_beside_cpu_torch"} & sys.modules.keys()
    if torch.version.cuda is None and not declared:
        library = torch.library.Library("torchvision", "FRAGMENT")
        for name, schema in _SCHEMAS.items():
            if not torch._C._jit_get_schemas_for_operator(f"torchvision::{name}"):
                library.define(schema)
    import torchvision as module

    module._headrace_schemas = library  # the declarations live as long as this object does
    return module
