"""Small models of transformers, saved as it saves them, and what its own pipeline answers.

    python -P hugging_face_models.py KIND FOLDER [IMAGES SCORES.npy]

A process of its own: transformers takes the folder `kernels` of a checkout, which tests have on their path, for a library.
KIND is vit, swin, resnet, or headless: a network without a classifier. IMAGES is a folder with files 0, 1, 2, ...
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

SIDE = {"vit": 112, "swin": 112, "resnet": 224, "headless": 112}
_VIT = {"image_size": 112, "patch_size": 16, "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2}
_SMALL = {
    "resnet": {"embedding_size": 16, "hidden_sizes": [16, 32], "depths": [1, 1]},
    "swin": {"image_size": 112, "embed_dim": 16, "depths": [1, 1], "num_heads": [1, 2]},
    "vit": _VIT | {"intermediate_size": 128},
}


def saved(kind: str, folder: Path, *more: Path) -> Path:
    """Run this file, and give the folder back."""
    subprocess.run([sys.executable, "-P", __file__, kind, str(folder), *map(str, more)], check=True, cwd=folder.parent)
    return folder


def main() -> None:
    import numpy as np
    import torch
    import transformers
    from transformers.image_utils import load_image

    from headrace.runtime.tuning.randomize import noise, randomized

    kind, folder, *more = sys.argv[1:]
    names = {index: f"class {index}" for index in range(40)}
    numbers = {name: index for index, name in names.items()}
    family = "vit" if kind == "headless" else kind
    config = transformers.AutoConfig.for_model(family, id2label=names, label2id=numbers, **_SMALL[family])
    side = SIDE[kind]
    if kind == "resnet":
        processor = transformers.ConvNextImageProcessor(size={"shortest_edge": side})
    else:
        processor = transformers.ViTImageProcessor(size={"height": side, "width": side})
    processor.save_pretrained(folder)
    rows = []
    if more:
        own = transformers.AutoImageProcessor.from_pretrained(folder)
        files = [Path(more[0]) / str(index) for index in range(len(list(Path(more[0]).iterdir())))]
        rows = [own(images=load_image(str(file)), return_tensors="pt")["pixel_values"] for file in files]
    if kind == "headless":
        torch.manual_seed(0)
        transformers.ViTModel(config).save_pretrained(folder)
        config.architectures = ["ViTForImageClassification"]
        config.save_pretrained(folder)
        return
    torch.manual_seed(0)
    model = transformers.AutoModelForImageClassification.from_config(config).eval()
    model = randomized(model, [noise((8, 3, side, side))]).eval()
    with torch.no_grad():
        if rows and kind == "resnet":  # too small to give other answers for other images, which would prove nothing
            head = [module for module in model.modules() if isinstance(module, torch.nn.Linear)][-1]
            head.bias -= torch.cat([model(row).logits for row in rows]).mean(0)
        if rows:
            np.save(more[1], torch.cat([model(row).logits for row in rows]).numpy())
    model.save_pretrained(folder)


if __name__ == "__main__":
    main()
