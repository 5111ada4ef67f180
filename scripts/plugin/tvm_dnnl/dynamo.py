# SPDX-License-Identifier: Apache-2.0
"""The backend "tvm_dnnl" of `torch.compile`, as PyTorch looks it up by its name.

TorchDynamo runs `nn.LSTM`, `nn.GRU` and `nn.RNN` eagerly, without a graph or a warning, unless it
is told to trace them. The backend is called with what was traced already, so it is told here.
"""

import torch._dynamo

from . import torch_backend

__all__ = ["torch_backend"]

torch._dynamo.config.allow_rnn = True
