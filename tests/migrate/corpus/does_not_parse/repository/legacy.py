import torch
print 'python 2 was here'
