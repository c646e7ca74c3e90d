"""PS144: feature extractors of images that transformers calls image processors."""

from ..rewriting.renames import Renames, table
from ..rewriting.rule import diff

_EXAMPLE_1 = diff("""\
import torch
-from transformers import ViTFeatureExtractor, ViTForImageClassification
+from transformers import ViTImageProcessor as ViTFeatureExtractor, ViTForImageClassification

extractor = ViTFeatureExtractor.from_pretrained("google/vit-base-patch16-224")
""")
_EXAMPLE_2 = diff("""\
import torch
import transformers

-extractor = transformers.ConvNextFeatureExtractor()  # of images
+extractor = transformers.ConvNextImageProcessor()  # of images
""")


class FeatureExtractors(Renames):
    """What it does: imports the image processors of transformers by the names that they have had since 4.26.

    Why: the old names were removed in transformers 5, and so the file that imports one ends there.

    Example: `from transformers import ViTFeatureExtractor` becomes
    `from transformers import ViTImageProcessor as ViTFeatureExtractor`.

    Fix safety: safe; each was only another name, with a warning, for what replaces it. AutoFeatureExtractor stays: it may be
    one of sounds.
    """

    safety = "safe"
    reason = "was removed from transformers"
    names = table("""
        transformers.BeitFeatureExtractor -> transformers.BeitImageProcessor
        transformers.CLIPFeatureExtractor -> transformers.CLIPImageProcessor
        transformers.ChineseCLIPFeatureExtractor -> transformers.ChineseCLIPImageProcessor
        transformers.ConditionalDetrFeatureExtractor -> transformers.ConditionalDetrImageProcessor
        transformers.ConvNextFeatureExtractor -> transformers.ConvNextImageProcessor
        transformers.DPTFeatureExtractor -> transformers.DPTImageProcessor
        transformers.DeformableDetrFeatureExtractor -> transformers.DeformableDetrImageProcessor
        transformers.DeiTFeatureExtractor -> transformers.DeiTImageProcessor
        transformers.DetrFeatureExtractor -> transformers.DetrImageProcessor
        transformers.DonutFeatureExtractor -> transformers.DonutImageProcessor
        transformers.FlavaFeatureExtractor -> transformers.FlavaImageProcessor
        transformers.GLPNFeatureExtractor -> transformers.GLPNImageProcessor
        transformers.ImageGPTFeatureExtractor -> transformers.ImageGPTImageProcessor
        transformers.LayoutLMv2FeatureExtractor -> transformers.LayoutLMv2ImageProcessor
        transformers.LayoutLMv3FeatureExtractor -> transformers.LayoutLMv3ImageProcessor
        transformers.LevitFeatureExtractor -> transformers.LevitImageProcessor
        transformers.MaskFormerFeatureExtractor -> transformers.MaskFormerImageProcessor
        transformers.MobileNetV1FeatureExtractor -> transformers.MobileNetV1ImageProcessor
        transformers.MobileNetV2FeatureExtractor -> transformers.MobileNetV2ImageProcessor
        transformers.MobileViTFeatureExtractor -> transformers.MobileViTImageProcessor
        transformers.OwlViTFeatureExtractor -> transformers.OwlViTImageProcessor
        transformers.PerceiverFeatureExtractor -> transformers.PerceiverImageProcessor
        transformers.PoolFormerFeatureExtractor -> transformers.PoolFormerImageProcessor
        transformers.SegformerFeatureExtractor -> transformers.SegformerImageProcessor
        transformers.ViTFeatureExtractor -> transformers.ViTImageProcessor
        transformers.VideoMAEFeatureExtractor -> transformers.VideoMAEImageProcessor
        transformers.ViltFeatureExtractor -> transformers.ViltImageProcessor
        transformers.YolosFeatureExtractor -> transformers.YolosImageProcessor
    """)
    VALID = ("import torch\nfrom transformers import AutoFeatureExtractor, ViTImageProcessor\n",)
    INVALID = (_EXAMPLE_1, _EXAMPLE_2)
