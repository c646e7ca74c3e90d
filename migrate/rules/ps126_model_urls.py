"""PS126: downloading weights through modules that are gone."""

from ..rewriting.renames import Renames, table

_VALID_1 = """\
import torch
from torch.hub import load_state_dict_from_url
import torch.utils.model_zoo as model_zoo
"""


class WeightsDownload(Renames):
    """What it does: downloads weights through torch.hub.

    Why: `torchvision.models.utils` was removed in 0.13; `torch.utils.model_zoo` only remains as another name.

    Example: `from torchvision.models.utils import load_state_dict_from_url` becomes `from torch.hub import
    load_state_dict_from_url`.

    Fix safety: safe; it is the same function. Imports with a fallback of their own stay.
    """

    safety = "safe"
    reason = "moved"
    names = table("""
        torchvision.models.utils.load_state_dict_from_url -> torch.hub.load_state_dict_from_url
        torchvision._internally_replaced_utils.load_state_dict_from_url -> torch.hub.load_state_dict_from_url
    """)
    VALID = (_VALID_1,)
    INVALID = (
        (
            "import torch\nfrom torchvision.models.utils import load_state_dict_from_url\n",
            "import torch\nfrom torch.hub import load_state_dict_from_url\n",
        ),
    )
