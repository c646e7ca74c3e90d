"""PS108: modules of timm that moved."""

from ..rewriting.renames import Renames, table
from ..rewriting.rule import diff

_VALID_1 = """\
import torch
from timm.layers import DropPath
from timm.models import register_model
"""
_EXAMPLE_1 = diff("""\
import torch
-from timm.models.layers import DropPath, to_2tuple  # layers
-from timm.models.registry import register_model
-from timm.data.transforms import _pil_interp, ToNumpy
+from timm.layers import DropPath, to_2tuple  # layers
+from timm.models import register_model
+from timm.data.transforms import str_to_pil_interp as _pil_interp, ToNumpy
""")
_EXAMPLE_2 = diff("""\
import torch
import timm
-import timm.models.layers as L
-from timm.optim.nadam import Nadam
+import timm.layers as L
+from timm.optim import NAdamLegacy as Nadam

-x = L.DropPath, timm.models.layers.Mlp
+x = L.DropPath, timm.layers.Mlp
""")
_EXAMPLE_3 = diff("""\
import timm
-from timm.data.parsers import create_parser, parser_tfds
-from timm.data.parsers.parser_image_folder import ParserImageFolder
+from timm.data.readers import create_reader as create_parser, reader_tfds as parser_tfds
+from timm.data.readers.reader_image_folder import ReaderImageFolder as ParserImageFolder
""")


class TimmModules(Renames):
    """What it does: imports from where timm keeps its layers, registry and helpers today.

    Why: the old modules are gone, or are copies kept for a while that warn at import.

    Example: `from timm.models.layers import DropPath` becomes `from timm.layers import DropPath`.

    Fix safety: safe; timm moved the same things in 0.9 and 1.0. NovoGrad is unsafe: NvNovoGrad, which timm kept, has
    other defaults. Imports with a fallback of their own stay.
    """

    safety = "safe"
    reason = "moved"
    inexact = frozenset(["timm.optim.novograd.NovoGrad"])
    modules = table("""
        timm.models.layers.helpers -> timm.layers
        timm.models.layers.weight_init -> timm.layers
        timm.models.layers.drop -> timm.layers
        timm.models.layers.activations -> timm.layers.activations
        timm.models.layers -> timm.layers
        timm.models.registry -> timm.models
        timm.models.helpers -> timm.models
        timm.models.hub -> timm.models
        timm.models.features -> timm.models
        timm.models.factory -> timm.models
        timm.models.efficientnet_blocks -> timm.models._efficientnet_blocks
        timm.models.efficientnet_builder -> timm.models._efficientnet_builder
        timm.data.parsers.parser_image_folder -> timm.data.readers.reader_image_folder
        timm.data.parsers.parser_image_in_tar -> timm.data.readers.reader_image_in_tar
        timm.data.parsers.parser_image_tar -> timm.data.readers.reader_image_tar
        timm.data.parsers.parser_factory -> timm.data.readers.reader_factory
        timm.data.parsers.parser_tfds -> timm.data.readers.reader_tfds
        timm.data.parsers.parser -> timm.data.readers.reader
        timm.data.parsers -> timm.data.readers
        timm.optim.optim_factory -> timm.optim
    """)
    names = table("""
        timm.data.transforms._pil_interp -> timm.data.transforms.str_to_pil_interp
        timm.models -> timm.layers: apply_test_time_pool convert_splitbn_model is_exportable is_scriptable set_exportable
        timm.models -> timm.layers: set_fused_attn set_layer_config set_no_jit set_scriptable TestTimePoolHead
        timm.data.Dataset -> timm.data.ImageDataset
        timm.data.dataset.Dataset -> timm.data.ImageDataset
        timm.data.parsers.create_parser -> timm.data.readers.create_reader
        timm.data.parsers.parser_factory.create_parser -> timm.data.readers.create_reader
        timm.data.parsers.parser.Parser -> timm.data.readers.reader.Reader
        timm.data.parsers.parser_image_folder.ParserImageFolder -> timm.data.readers.reader_image_folder.ReaderImageFolder
        timm.data.parsers.parser_image_in_tar.ParserImageInTar -> timm.data.readers.reader_image_in_tar.ReaderImageInTar
        timm.data.parsers.parser_image_tar.ParserImageTar -> timm.data.readers.reader_image_tar.ReaderImageTar
        timm.data.parsers.parser_tfds.ParserTfds -> timm.data.readers.reader_tfds.ReaderTfds
        timm.optim.nadam.Nadam -> timm.optim.NAdamLegacy
        timm.optim.radam.RAdam -> timm.optim.RAdamLegacy
        timm.optim.adamw.AdamW -> timm.optim.AdamWLegacy
        timm.optim.novograd.NovoGrad -> timm.optim.NvNovoGrad
    """)
    VALID = (_VALID_1,)
    INVALID = (_EXAMPLE_1, _EXAMPLE_2, _EXAMPLE_3)
