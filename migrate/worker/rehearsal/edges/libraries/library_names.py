"""What is known of libraries by name: those that give nothing back, those that own a script, and how they are installed."""

from __future__ import annotations

import re

SILENT = frozenset([
    "aim", "alive_progress", "clearml", "codecarbon", "comet_ml", "dvclive", "flask_cors", "fvcore", "livelossplot",
    "loguru", "mlflow", "neptune", "nvidia_smi", "progress", "progressbar", "ptflops", "pthflops", "pynvml",
    "setproctitle", "swanlab", "telegram", "tensorboard", "tensorboard_logger", "tensorboardX", "thop", "torchinfo",
    "torchstat", "torchsummary", "torchsummaryX", "torchviz", "trackio", "visdom", "wandb",
])  # fmt: skip
"""Libraries that watch a script, or what is asked of it, and give nothing back that its results depend on."""
OWNS = frozenset([
    "accelerate", "albumentations", "catalyst", "datasets", "dotenv", "efficientnet_pytorch", "fastai", "gin", "hydra",
    "ignite", "kornia", "lightning", "mmcls", "mmcv", "mmengine", "mmpretrain", "monai", "omegaconf", "peft",
    "pretrainedmodels", "pytorch_lightning", "timm", "torchvision", "transformers", "ultralytics", "yacs",
])  # fmt: skip
"""Libraries that hold a script's model, its data or its configuration, or own its loop: nothing stands in for their use."""
OTHERS = frozenset(["flax", "jax", "keras", "mindspore", "mxnet", "paddle", "tensorflow", "tf_keras", "tflite_runtime"])
"""Libraries whose models are no PyTorch's: with them installed, the script would show none that can be migrated."""
HOSTS = frozenset(["google.colab", "kaggle_datasets", "kaggle_secrets", "kaggle_web_client"])
"""Modules of services that run notebooks: they are there and nowhere else, and no index has them."""
NAMES = (("lightning.pytorch", "pytorch_lightning"), ("lightning.fabric", "lightning_fabric"))
"""One library under two names: people have one installed, and scripts import either."""
USED = r"of which ([\w.]+) is used|^([\w.]+) is not in the installed"
"""How the use of what can be imported and not used is told."""
RECORDS = re.compile(r"metric|logg|callback|profil|visual|plot|progress|summar|report|track", re.I)
"""Parts of libraries that keep records."""
DISTRIBUTIONS = {
    "attr": "attrs", "bs4": "beautifulsoup4", "Crypto": "pycryptodome", "cv2": "opencv-python",
    "dateutil": "python-dateutil", "discord": "discord.py", "docx": "python-docx", "dotenv": "python-dotenv",
    "faiss": "faiss-cpu", "fitz": "pymupdf", "git": "gitpython", "hydra": "hydra-core", "ignite": "pytorch-ignite",
    "imblearn": "imbalanced-learn", "jwt": "pyjwt", "magic": "python-magic", "mpl_toolkits": "matplotlib",
    "multipart": "python-multipart", "nrrd": "pynrrd", "openslide": "openslide-python", "osgeo": "gdal",
    "PIL": "pillow", "pkg_resources": "setuptools<82", "pl_bolts": "lightning-bolts",
    "psycopg2": "psycopg2-binary", "pytorch_grad_cam": "grad-cam", "serial": "pyserial", "skimage": "scikit-image",
    "sklearn": "scikit-learn", "skopt": "scikit-optimize", "telebot": "pyTelegramBotAPI",
    "telegram": "python-telegram-bot", "umap": "umap-learn", "websocket": "websocket-client", "yaml": "pyyaml",
    "zmq": "pyzmq",
}  # fmt: skip
"""Names under which libraries are installed, where they are others than they are imported by."""
COMMON = frozenset([
    "boto3", "click", "dask", "einops", "fastapi", "fire", "flask", "geopandas", "gradio", "h5py", "httpx", "imageio",
    "imgaug", "jinja2", "joblib", "lightgbm", "lmdb", "matplotlib", "networkx", "nibabel", "numba", "numpy", "onnx",
    "onnxruntime", "optuna", "pandas", "plotly", "polars", "psutil", "pyarrow", "pycocotools", "pydantic", "pydicom",
    "rasterio", "ray", "redis", "requests", "rich", "scipy", "seaborn", "SimpleITK", "skorch", "sqlalchemy",
    "statsmodels", "streamlit", "tabulate", "tifffile", "torchmetrics", "tqdm", "uvicorn", "xgboost", "zarr",
])  # fmt: skip
"""Others that everybody means by these names."""
ENVIRONMENT = {
    "WANDB_MODE": "disabled",
    "WANDB_SILENT": "true",
    "COMET_MODE": "disabled",
    "NEPTUNE_MODE": "offline",
    "HYDRA_FULL_ERROR": "1",
}
"""So that trackers reach nobody, and an error in a script of Hydra's comes out as it is."""
