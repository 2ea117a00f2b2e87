# SPDX-License-Identifier: Apache-2.0
"""The five zoo nets. Each takes images (N, 1, 28, 28) and returns logits (N, 10)."""

import torch.nn.functional as F
from torch import nn, zeros

CLASSES = 10


def mlp():
    return nn.Sequential(
        nn.Flatten(),
        nn.Linear(28 * 28, 256), nn.ReLU(),
        nn.Linear(256, 128), nn.ReLU(),
        nn.Linear(128, CLASSES),
    )


def cnn():
    return nn.Sequential(
        nn.Conv2d(1, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(32, 64, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(64 * 7 * 7, 128), nn.ReLU(),
        nn.Linear(128, CLASSES),
    )


def conv_norm(inputs, outputs, size, stride=1, groups=1):
    """A convolution without bias, padded to keep the image size, and its batch normalisation."""
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, size, stride, size // 2, groups=groups, bias=False),
        nn.BatchNorm2d(outputs),
    )


class BasicBlock(nn.Module):
    """relu(conv(relu(conv(x))) + x); a 1x1 convolution fits x where the shape changes."""

    def __init__(self, inputs, outputs, stride):
        super().__init__()
        self.conv1 = conv_norm(inputs, outputs, 3, stride)
        self.conv2 = conv_norm(outputs, outputs, 3)
        same = stride == 1 and inputs == outputs
        self.shortcut = nn.Identity() if same else conv_norm(inputs, outputs, 1, stride)

    def forward(self, x):
        return F.relu(self.conv2(F.relu(self.conv1(x))) + self.shortcut(x))


def resnet():
    return nn.Sequential(
        conv_norm(1, 16, 3), nn.ReLU(),
        BasicBlock(16, 16, 1), BasicBlock(16, 16, 1),
        BasicBlock(16, 32, 2), BasicBlock(32, 32, 1),
        BasicBlock(32, 64, 2), BasicBlock(64, 64, 1),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(),
        nn.Linear(64, CLASSES),
    )


class InvertedResidual(nn.Module):
    """1x1 expansion, 3x3 depthwise, linear 1x1 projection; adds x where the shape is kept."""

    def __init__(self, inputs, outputs, expand, stride):
        super().__init__()
        hidden = inputs * expand
        self.adds = stride == 1 and inputs == outputs
        self.body = nn.Sequential(
            conv_norm(inputs, hidden, 1), nn.ReLU6(),
            conv_norm(hidden, hidden, 3, stride, groups=hidden), nn.ReLU6(),
            conv_norm(hidden, outputs, 1),
        )

    def forward(self, x):
        return x + self.body(x) if self.adds else self.body(x)


def mobilenet():
    return nn.Sequential(
        conv_norm(1, 16, 3), nn.ReLU6(),
        InvertedResidual(16, 16, 2, 1),
        InvertedResidual(16, 24, 4, 2), InvertedResidual(24, 24, 4, 1),
        InvertedResidual(24, 32, 4, 2), InvertedResidual(32, 32, 4, 1),
        InvertedResidual(32, 64, 4, 1), InvertedResidual(64, 64, 4, 1),
        conv_norm(64, 256, 1), nn.ReLU6(),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(),
        nn.Linear(256, CLASSES),
    )


class Attention(nn.Module):
    """Multi-head self-attention, softmax(q k' / sqrt(d)) v, over (N, tokens, width)."""

    def __init__(self, width, heads):
        super().__init__()
        self.heads, self.depth = heads, width // heads
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)

    def forward(self, x):
        tokens, width = x.shape[1:]
        qkv = self.qkv(x).reshape(-1, tokens, 3, self.heads, self.depth)
        q, k, v = qkv.permute(2, 0, 3, 1, 4).unbind(0)  # each (N, heads, tokens, depth)
        scores = q @ k.transpose(-2, -1) * self.depth**-0.5
        mixed = scores.softmax(-1) @ v
        return self.out(mixed.transpose(1, 2).reshape(-1, tokens, width))


class EncoderBlock(nn.Module):
    """Pre-norm transformer block: x + attention(norm(x)), then x + mlp(norm(x))."""

    def __init__(self, width, heads):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = Attention(width, heads)
        self.mlp = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
        )

    def forward(self, x):
        x = x + self.attention(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class ViT(nn.Module):
    """Vision transformer without a class token: the mean of all tokens is classified."""

    def __init__(self, patch=4, width=96, depth=5, heads=4):
        super().__init__()
        self.patches = nn.Conv2d(1, width, patch, stride=patch)
        self.position = nn.Parameter(zeros(1, (28 // patch) ** 2, width))
        nn.init.trunc_normal_(self.position, std=0.02)
        self.blocks = nn.Sequential(*(EncoderBlock(width, heads) for _ in range(depth)))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, CLASSES)

    def forward(self, x):
        tokens = self.patches(x).flatten(2).transpose(1, 2)  # (N, tokens, width)
        return self.head(self.norm(self.blocks(tokens + self.position)).mean(1))


def vit():
    return ViT()
