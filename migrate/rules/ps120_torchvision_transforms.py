"""PS120: transforms that torchvision renamed."""

from ..rewriting.renames import Renames, table
from ..rewriting.rule import diff

_VALID_1 = """\
import torch
import torchvision.transforms as T

x = T.Resize(2)  # T.Scale
"""
_EXAMPLE_1 = diff("""\
import torch
import torchvision.transforms as T
-from torchvision.transforms import RandomSizedCrop
+from torchvision.transforms import RandomResizedCrop as RandomSizedCrop

-x = [T.Scale(256), RandomSizedCrop(224)]
+x = [T.Resize(256), RandomSizedCrop(224)]
""")
_EXAMPLE_2 = diff("""\
import torch
from torchvision import transforms, datasets

-x = transforms.Compose([transforms.Scale(256)])
+x = transforms.Compose([transforms.Resize(256)])
""")


class TorchvisionTransforms(Renames):
    """What it does: uses the names that the transforms have today.

    Why: torchvision 0.13 removed the old names.

    Example: `transforms.Scale(256)` becomes `transforms.Resize(256)`.

    Fix safety: safe; they are the same transforms.
    """

    safety = "safe"
    reason = "was removed from torchvision"
    names = table("""
        torchvision.transforms.Scale -> torchvision.transforms.Resize
        torchvision.transforms.RandomSizedCrop -> torchvision.transforms.RandomResizedCrop
        torchvision.transforms.transforms.Scale -> torchvision.transforms.Resize
    """)
    VALID = (_VALID_1,)
    INVALID = (_EXAMPLE_1, _EXAMPLE_2)
