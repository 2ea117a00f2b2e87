# SPDX-License-Identifier: Apache-2.0
"""BERT-base encoder (Devlin et al. 2018), spelled the way the Hugging Face library spells it.

The spelling matters, not the weights: separate query, key and value projections, the mask added to
the scores, post-norm blocks and shapes taken from the tensors are what exported models in the wild
look like.
"""

import torch
from torch import nn

VOCABULARY = 30522
POSITIONS = 512
SEGMENTS = 2
WIDTH = 768
INNER = 3072
HEADS = 12
LAYERS = 12
EPSILON = 1e-12


class Embeddings(nn.Module):
    def __init__(self):
        super().__init__()
        self.word = nn.Embedding(VOCABULARY, WIDTH, padding_idx=0)
        self.position = nn.Embedding(POSITIONS, WIDTH)
        self.segment = nn.Embedding(SEGMENTS, WIDTH)
        self.norm = nn.LayerNorm(WIDTH, eps=EPSILON)
        self.register_buffer("position_ids", torch.arange(POSITIONS)[None])

    def forward(self, tokens, segments):
        positions = self.position_ids[:, : tokens.size(1)]
        return self.norm(self.word(tokens) + self.segment(segments) + self.position(positions))


class SelfAttention(nn.Module):
    """softmax(q k' / sqrt(d) + mask) v, then the output projection and the residual norm."""

    def __init__(self):
        super().__init__()
        self.query = nn.Linear(WIDTH, WIDTH)
        self.key = nn.Linear(WIDTH, WIDTH)
        self.value = nn.Linear(WIDTH, WIDTH)
        self.out = nn.Linear(WIDTH, WIDTH)
        self.norm = nn.LayerNorm(WIDTH, eps=EPSILON)
        self.depth = WIDTH // HEADS  # of a head

    def split_heads(self, x):
        """(N, tokens, width) to (N, heads, tokens, depth)."""
        return x.view(*x.size()[:-1], HEADS, self.depth).permute(0, 2, 1, 3)

    def forward(self, x, mask):
        q = self.split_heads(self.query(x))
        k = self.split_heads(self.key(x))
        v = self.split_heads(self.value(x))
        scores = q @ k.transpose(-1, -2) / self.depth**0.5 + mask
        mixed = (scores.softmax(-1) @ v).permute(0, 2, 1, 3).contiguous()
        mixed = mixed.view(*mixed.size()[:-2], HEADS * self.depth)
        return self.norm(self.out(mixed) + x)


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.attention = SelfAttention()
        self.widen = nn.Linear(WIDTH, INNER)
        self.narrow = nn.Linear(INNER, WIDTH)
        self.norm = nn.LayerNorm(WIDTH, eps=EPSILON)

    def forward(self, x, mask):
        x = self.attention(x, mask)
        return self.norm(self.narrow(nn.functional.gelu(self.widen(x))) + x)


class BertModel(nn.Module):
    """Token ids, attention mask (1 keeps) and segment ids, all int64 (N, tokens), to the hidden
    states (N, tokens, width) and the pooled first token (N, width)."""

    def __init__(self):
        super().__init__()
        self.embeddings = Embeddings()
        self.layers = nn.ModuleList(Layer() for _ in range(LAYERS))
        self.pooler = nn.Linear(WIDTH, WIDTH)
        self.apply(self.init_weights)

    @staticmethod
    def init_weights(module):
        if isinstance(module, (nn.Linear, nn.Embedding)):
            nn.init.normal_(module.weight, std=0.02)

    def forward(self, tokens, mask, segments):
        x = self.embeddings(tokens, segments)
        added = (1.0 - mask[:, None, None, :].to(x.dtype)) * torch.finfo(x.dtype).min
        for layer in self.layers:
            x = layer(x, added)
        return x, torch.tanh(self.pooler(x[:, 0]))
