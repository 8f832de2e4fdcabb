"""The digits detector: an anchor-free, one-stage YOLO with strides 8, 16, 32."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional as F

STRIDES = (8, 16, 32)
CLASSES = 10


class Conv(nn.Module):
    def __init__(self, cin: int, cout: int, kernel: int = 1, stride: int = 1):
        super().__init__()
        self.conv = nn.Conv2d(cin, cout, kernel, stride, kernel // 2, bias=False)
        self.bn = nn.BatchNorm2d(cout, eps=1e-3, momentum=0.03)
        self.act = nn.SiLU()

    def forward(self, x):
        return self.act(self.bn(self.conv(x)))


class Bottleneck(nn.Module):
    def __init__(self, channels: int, shortcut: bool):
        super().__init__()
        self.cv1, self.cv2, self.shortcut = Conv(channels, channels, 3), Conv(channels, channels, 3), shortcut

    def forward(self, x):
        y = self.cv2(self.cv1(x))
        return x + y if self.shortcut else y


class C2f(nn.Module):
    """Two halves, one passed through a bottleneck; all three joined."""

    def __init__(self, cin: int, cout: int, shortcut: bool = True):
        super().__init__()
        half = cout // 2
        self.cv1, self.cv2 = Conv(cin, half), Conv(cin, half)
        self.body, self.out = Bottleneck(half, shortcut), Conv(half * 3, cout)

    def forward(self, x):
        a, b = self.cv1(x), self.cv2(x)
        return self.out(torch.cat([a, b, self.body(b)], 1))


class SPPF(nn.Module):
    def __init__(self, channels: int):
        super().__init__()
        half = channels // 2
        self.cv1, self.cv2 = Conv(channels, half), Conv(half * 4, channels)
        self.pool = nn.MaxPool2d(5, 1, 2)

    def forward(self, x):
        x = self.cv1(x)
        a = self.pool(x)
        b = self.pool(a)
        return self.cv2(torch.cat([x, a, b, self.pool(b)], 1))


class Head(nn.Module):
    """Per level: four distances in strides (left, top, right, bottom) and ten class logits."""

    def __init__(self, cin: int):
        super().__init__()
        self.box = nn.Sequential(Conv(cin, 24, 3), nn.Conv2d(24, 4, 1))
        self.cls = nn.Sequential(Conv(cin, 48, 3), nn.Conv2d(48, CLASSES, 1))
        nn.init.constant_(self.box[-1].bias, 2.0)
        nn.init.constant_(self.cls[-1].bias, -4.6)

    def forward(self, x):
        return self.box(x), self.cls(x)


class DigitsYolo(nn.Module):
    def __init__(self, widths: tuple[int, ...] = (16, 24, 48, 72, 96)):
        super().__init__()
        w1, w2, w3, w4, w5 = widths
        self.stem = nn.Sequential(Conv(3, w1, 3, 2), Conv(w1, w2, 3, 2), C2f(w2, w2))
        self.p3 = nn.Sequential(Conv(w2, w3, 3, 2), C2f(w3, w3))
        self.p4 = nn.Sequential(Conv(w3, w4, 3, 2), C2f(w4, w4))
        self.p5 = nn.Sequential(Conv(w4, w5, 3, 2), C2f(w5, w5), SPPF(w5))
        self.up = nn.Upsample(scale_factor=2, mode="nearest")
        self.n4 = C2f(w5 + w4, w4, False)
        self.n3 = C2f(w4 + w3, w3, False)
        self.d3, self.m4 = Conv(w3, w3, 3, 2), C2f(w3 + w4, w4, False)
        self.d4, self.m5 = Conv(w4, w4, 3, 2), C2f(w4 + w5, w5, False)
        self.heads = nn.ModuleList(Head(width) for width in (w3, w4, w5))

    def forward(self, x):
        """Return distances [N,4,A] in strides and class logits [N,10,A]."""
        p3 = self.p3(self.stem(x))
        p4 = self.p4(p3)
        p5 = self.p5(p4)
        n4 = self.n4(torch.cat([self.up(p5), p4], 1))
        n3 = self.n3(torch.cat([self.up(n4), p3], 1))
        m4 = self.m4(torch.cat([self.d3(n3), n4], 1))
        m5 = self.m5(torch.cat([self.d4(m4), p5], 1))
        levels = [head(level) for head, level in zip(self.heads, (n3, m4, m5), strict=True)]
        boxes = torch.cat([box.reshape(box.shape[0], 4, -1) for box, _ in levels], 2)
        logits = torch.cat([cls.reshape(cls.shape[0], CLASSES, -1) for _, cls in levels], 2)
        return boxes, logits


def anchors(size: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Cell centres [2,A] in pixels and strides [1,A] of a square frame."""
    points, strides = [], []
    for stride in STRIDES:
        n = size // stride
        axis = (torch.arange(n, dtype=torch.float32) + 0.5) * stride
        y, x = torch.meshgrid(axis, axis, indexing="ij")
        points.append(torch.stack([x.reshape(-1), y.reshape(-1)]))
        strides.append(torch.full((1, n * n), float(stride)))
    return torch.cat(points, 1), torch.cat(strides, 1)


class Deployed(nn.Module):
    """The exported graph: boxes as (cx, cy, w, h) in pixels and sigmoid scores."""

    def __init__(self, model: DigitsYolo, size: int):
        super().__init__()
        self.model = model
        points, strides = anchors(size)
        self.register_buffer("points", points[None])
        self.register_buffer("strides", strides[None])
        self.register_buffer("half_strides", strides[None] * 0.5)

    def forward(self, images):
        distances, logits = self.model(images)
        lt, rb = distances[:, :2], distances[:, 2:]
        centre = (rb - lt) * self.half_strides + self.points
        extent = (lt + rb) * self.strides
        return torch.cat([centre, extent], 1), torch.sigmoid(logits)


def pairwise_giou(a: torch.Tensor, b: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """IoU and GIoU of corner boxes, broadcast over leading axes."""
    lt, rb = torch.maximum(a[..., :2], b[..., :2]), torch.minimum(a[..., 2:], b[..., 2:])
    inter = (rb - lt).clamp(min=0).prod(-1)
    area_a = (a[..., 2:] - a[..., :2]).clamp(min=0).prod(-1)
    area_b = (b[..., 2:] - b[..., :2]).clamp(min=0).prod(-1)
    union = area_a + area_b - inter + 1e-6
    hull = torch.maximum(a[..., 2:], b[..., 2:]) - torch.minimum(a[..., :2], b[..., :2])
    whole = hull.clamp(min=0).prod(-1) + 1e-6
    iou = inter / union
    return iou, iou - (whole - union) / whole


@torch.no_grad()
def assign(pred, scores, gt, gt_class, valid, points, top: int = 8):
    """Task-aligned assignment: for each truth the best cells by score * IoU^4.

    pred [N,A,4], scores [N,A,10], gt [N,M,4], gt_class [N,M], valid [N,M].
    Returns the matched truth [N,A], the positive mask [N,A], the target [N,A].
    """
    iou, _ = pairwise_giou(gt[:, :, None], pred[:, None])  # N,M,A
    picked = scores.transpose(1, 2).gather(1, gt_class[..., None].expand(-1, -1, scores.shape[1]))
    # Thin digits may hold no cell centre, so their candidate area is widened.
    centre = (gt[..., :2] + gt[..., 2:]) / 2
    half = ((gt[..., 2:] - gt[..., :2]) / 2).clamp(min=6.5)
    inside = ((points.T[None, None] - centre[:, :, None]).abs() < half[:, :, None]).all(-1)
    metric = picked.clamp(min=1e-6).sqrt() * iou.pow(4) + 1e-9
    metric = metric * inside * valid[..., None]
    best, index = metric.topk(top, dim=-1)
    chosen = torch.zeros_like(metric).scatter_(-1, index, (best > 0).float())
    shared = metric * chosen
    value, matched = shared.max(1)
    positive = value > 0
    own = torch.zeros_like(chosen).scatter_(1, matched[:, None], positive[:, None].float())
    peak_metric = (metric * own).amax(-1, keepdim=True)
    peak_iou = (iou * own).amax(-1, keepdim=True)
    target = (metric * own * peak_iou / (peak_metric + 1e-9)).amax(1)
    return matched, positive, target


def detection_loss(distances, logits, gt, gt_class, valid, points, strides):
    """Class BCE against the aligned target, GIoU and a small distance term."""
    distances, logits = distances.float().transpose(1, 2), logits.float().transpose(1, 2)
    centre, stride = points.T[None], strides.T[None]
    pred = torch.cat([centre - distances[..., :2] * stride, centre + distances[..., 2:] * stride], -1)
    matched, positive, target = assign(pred, logits.sigmoid(), gt, gt_class, valid, points)
    labels = gt_class.gather(1, matched)
    goal = F.one_hot(labels, CLASSES).float() * (target * positive)[..., None]
    total = goal.sum().clamp(min=1.0)
    loss_cls = F.binary_cross_entropy_with_logits(logits, goal, reduction="sum") / total
    truth = gt.gather(1, matched[..., None].expand(-1, -1, 4))
    weight = (target * positive)[positive]
    _, giou = pairwise_giou(pred[positive], truth[positive])
    wanted = torch.cat([centre - truth[..., :2], truth[..., 2:] - centre], -1) / stride
    size = ((truth[..., 2:] - truth[..., :2]) / stride).mean(-1, keepdim=True)[positive]
    near = F.smooth_l1_loss(distances[positive] / size, wanted[positive] / size, reduction="none", beta=0.05)
    loss_box = ((1 - giou) * weight).sum() / total
    loss_near = (near.mean(-1) * weight).sum() / total
    return loss_cls + 5.0 * loss_box + 4.0 * loss_near, (loss_cls.item(), loss_box.item(), loss_near.item())
