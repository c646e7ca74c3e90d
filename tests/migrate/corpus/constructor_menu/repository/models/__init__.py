from .vgg import *
from .mobile import *
