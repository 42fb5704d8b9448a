"""The model in plain PyTorch, only to compare speed; needs nothing but torch.

The layers and shapes of the paper's appendix, its objective in the `released` form
with all annealing, gradient clipping and Adam, written as one would write it for
PyTorch: channels first, eager. The numbers it computes are used by nobody.
"""

import json
import math
import sys

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.flop_counter import FlopCounterMode

from benchmarks import turns

SIGMA_X, ALPHA, NUM_ITERATIONS = 0.2, 4.5, 3
PRECISION = 0.125 / SIGMA_X**2


def mlp(sizes: list[int], last: bool = False) -> nn.Sequential:
    """Linear layers with SiLU between them, and after the last if asked."""
    parts: list[nn.Module] = []
    for pair in zip(sizes, sizes[1:], strict=False):
        parts += [nn.Linear(*pair), nn.SiLU()]
    return nn.Sequential(*(parts if last else parts[:-1]))


def grid(height: int, width: int) -> Tensor:
    """Coordinates (x, y) in [-1, 1], end points included."""
    y, x = torch.linspace(-1, 1, height), torch.linspace(-1, 1, width)
    return torch.stack(torch.meshgrid(x, y, indexing="xy"), -1)


class ImageNet(nn.Module):
    """A latent vector to an image."""

    def __init__(self, latent: int, sizes: dict, out: int):
        super().__init__()
        width, channels = sizes["width"], sizes["channels"]
        self.factor = 2 ** len(channels)
        self.mlp = mlp([latent, *sizes["hidden"], width], last=True)
        self.position = nn.Linear(2, width)
        layer = nn.TransformerEncoderLayer(
            width,
            sizes["num_heads"],
            sizes["mlp_hidden"],
            dropout=0.0,
            activation=functional.silu,
            batch_first=True,
            norm_first=True,
        )
        self.transformer = nn.TransformerEncoder(
            layer, sizes["num_layers"], enable_nested_tensor=False
        )
        parts = [nn.ConvTranspose2d(width, channels[0], 3, padding=1), nn.SiLU()]
        for same, after in zip(channels, [*channels[1:], out], strict=True):
            parts += [nn.ConvTranspose2d(same, same, 4, 2, padding=1), nn.SiLU()]
            parts += [nn.ConvTranspose2d(same, after, 3, padding=1), nn.SiLU()]
        self.upsample = nn.Sequential(*parts[:-1])

    def forward(self, latent: Tensor, size: int) -> Tensor:
        """From [n, e] to [n, c, size, size]."""
        side = size // self.factor
        position = torch.sin(self.position(grid(side, side).reshape(-1, 2)))
        x = self.transformer(self.mlp(latent)[:, None] + position)
        return self.upsample(x.transpose(1, 2).reshape(len(x), -1, side, side))


class Encoder(nn.Module):
    """Images to the parameters of q."""

    def __init__(self, sizes: dict):
        super().__init__()
        self.sizes, width = sizes, sizes["features"]
        slot = sizes["slot_view"] + sizes["slot_attr"]
        convs = [nn.Conv2d(3, width, 4, 2, padding=1), nn.SiLU()]
        for _ in range(sizes["num_convs"] - 1):
            convs += [nn.Conv2d(width, width, 5, padding=2), nn.SiLU()]
        self.convs, self.position = nn.Sequential(*convs), nn.Linear(2, width)
        self.features = nn.Sequential(nn.LayerNorm(width), mlp([width] * 3))
        self.norm = nn.LayerNorm(width)
        self.key = nn.Linear(width, sizes["key"], bias=False)
        self.value = nn.Linear(width, slot, bias=False)
        self.query = nn.Sequential(
            nn.LayerNorm(slot), nn.Linear(slot, sizes["key"], bias=False)
        )
        self.gru = nn.GRUCell(slot, slot)
        hidden = sizes["update_hidden"]
        self.update = nn.Sequential(nn.LayerNorm(slot), mlp([slot, hidden, slot]))
        for name in ("view", "attr"):
            start = torch.zeros(2, sizes[f"slot_{name}"])
            setattr(self, f"init_{name}", nn.Parameter(start))
        head = [sizes["head_hidden"]] * 2
        attr = sizes["slot_attr"]
        self.view_head = mlp([sizes["slot_view"], *head, 2 * sizes["latent_view"]])
        self.obj_head = mlp([attr, *head, 2 * sizes["latent_obj"] + 3])
        self.bck_slots = mlp([attr, head[0], head[0] + 1])
        self.bck_head = mlp([head[0], *head, 2 * sizes["latent_bck"]])

    def forward(self, images: Tensor, num_slots: int) -> tuple[Tensor, ...]:
        """Images [b, m, 3, h, w] to view, object and background parameters."""
        b, m = images.shape[:2]
        x = self.convs(images.flatten(0, 1)).permute(0, 2, 3, 1)
        x = self.features(x + self.position(grid(*x.shape[1:3])))
        x = self.norm(x).reshape(b, m, -1, x.shape[-1])
        key = self.key(x) * self.sizes["key"] ** -0.5
        view, attr = self._refine(key, self.value(x), num_slots)
        background = self.bck_slots(attr)
        weights = background[..., -1:].softmax(1)
        background = self.bck_head((weights * background[..., :-1]).sum(1))
        return self.view_head(view), self.obj_head(attr), background

    def _refine(self, key: Tensor, value: Tensor, k: int) -> tuple[Tensor, Tensor]:
        b, m = key.shape[:2]
        (loc_v, scale_v), (loc_a, scale_a) = self.init_view, self.init_attr
        view = loc_v + scale_v.exp() * torch.randn(b, m, len(loc_v))
        attr = loc_a + scale_a.exp() * torch.randn(b, k, len(loc_a))
        for _ in range(NUM_ITERATIONS):
            full = torch.cat(
                [
                    view[:, :, None].expand(-1, -1, k, -1),
                    attr[:, None].expand(-1, m, -1, -1),
                ],
                -1,
            )
            logits = self.query(full) @ key.transpose(-1, -2)
            update = logits.log_softmax(-2).softmax(-1) @ value
            full = self.gru(update.flatten(0, 2), full.flatten(0, 2))
            full = (full + self.update(full)).reshape(b, m, k, -1)
            view, attr = full.split([len(loc_v), len(loc_a)], -1)
            view, attr = view.mean(2), attr.mean(1)
        return view, attr


class Model(nn.Module):
    """Encoder, decoder and objective of a batch."""

    def __init__(self, sizes: dict):
        super().__init__()
        view, latent_obj = sizes["latent_view"], sizes["latent_obj"]
        self.encoder = Encoder(sizes)
        self.background = ImageNet(
            view + sizes["latent_bck"], sizes["background"], out=3
        )
        self.objects = ImageNet(view + latent_obj, sizes["objects"], out=6)
        self.order = mlp([view + latent_obj, *sizes["order_hidden"], 3])

    def forward(self, images: Tensor, num_slots: int) -> Tensor:
        """The objective of images [b, m, 3, h, w], halfway through its annealing."""
        (b, m, _, size, _), k = images.shape, num_slots
        view, obj, bck = self.encoder(images, k)
        kl = normal_kl(view) + normal_kl(obj[..., :-3]) + 2 * normal_kl(bck)
        tau, logit = functional.softplus(obj[..., -3:-1]), obj[..., -1]
        kl = kl + presence_kl(tau, logit)
        view, bck = sample(view), sample(bck)
        objects = sample(obj[..., :-3])
        log_presence = functional.logsigmoid((logit + logistic(logit)) / 2)
        view_bck = torch.cat([view, bck[:, None].expand(-1, m, -1)], -1)
        background = self.background(view_bck.flatten(0, 1), size)
        pairs = [
            view[:, :, None].expand(-1, -1, k, -1),
            objects[:, None].expand(-1, m, -1, -1),
        ]
        view_obj = torch.cat(pairs, -1)
        maps = self.objects(view_obj.flatten(0, 2), size).reshape(b, m, k, 6, size, -1)
        order = self.order(view_obj)
        background = background.reshape(b, m, 3, size, size)
        kappa = logit.sigmoid().detach()
        error = objective(images, background, maps, order, log_presence)
        return (error + kl + size**2 * 1e-4 * (kappa * logit).sum()) / b


def objective(
    x: Tensor, background: Tensor, maps: Tensor, order: Tensor, log_presence: Tensor
) -> Tensor:
    """Composition and reconstruction terms, with every coefficient in use."""
    ratio, temperature = 0.5, 2.0
    apc, shp, light, sdw = maps.split([3, 1, 1, 1], 3)
    logit = ratio * (shp - 3) + (1 - ratio) * (shp - 3 + logistic(shp)) / temperature
    shadow = ratio * (sdw - 3) + (1 - ratio) * (sdw - 3 + logistic(sdw)) / temperature
    shape_imp, shape_sdw = logit.sigmoid(), shadow.sigmoid()
    shape = shape_imp * (1 - shape_sdw)
    log_presence = log_presence[:, None, :, None, None, None]
    depth = order[..., :1, None, None] / temperature
    bck, obj = masks(shape, log_presence, depth, ratio)
    bck_imp, obj_imp = masks(shape_imp, log_presence, depth, ratio)
    bck_sdw, obj_sdw = masks(shape_sdw, log_presence, 0 * depth, 0.0)
    dark = (background[:, :, None] + 1) * (0.8 * light.sigmoid() + 0.2) - 1
    shadowed = bck_sdw * background + (obj_sdw * dark).sum(2)
    centre = order[..., 1:].tanh()[..., None, None]
    position = grid(*apc.shape[-2:]).permute(2, 0, 1)
    far = 1 - (-0.03 * (position - centre).square().sum(3, keepdim=True)).exp()
    noisy = apc + (0.05 + 0.5 * far) * torch.randn_like(apc)
    recon = bck * shadowed + (obj * noisy).sum(2)
    recon_imp = bck_imp * background + (obj_imp * noisy).sum(2)
    layers = torch.cat([shadowed[:, :, None], apc], 2)
    mask = torch.cat([bck[:, :, None], obj], 2)
    error = (layers - x[:, :, None]).square().sum(3, keepdim=True)
    joint = torch.log(mask * (1 - 2e-5) + 1e-5) - PRECISION * error
    errors = [(image - x).square().sum() for image in (recon, recon_imp, shadowed)]
    with torch.no_grad():
        area = (shape_imp * (shape_sdw > 0.1)).sum((-1, -2)) / shape_imp.sum((-1, -2))
        gate = (area > 0.5).float()
    deviation = (shadow + 3).abs().sum((-1, -2))
    regular = (logit + 3).abs().sum() + deviation.sum() + (gate * deviation).sum()
    return (
        -1.5 * joint.logsumexp(2).sum()
        + PRECISION * (0.25 * errors[0] + 0.25 * errors[1] + 0.01 * errors[2])
        + 1e-4 * regular
    )


def masks(
    shape: Tensor, log_presence: Tensor, order: Tensor, ratio: float
) -> tuple[Tensor, Tensor]:
    """Background and object masks: ordered forwards, soft backwards, blended."""
    present = shape * log_presence.exp()
    background = (1 - present).prod(2)
    logits = torch.log(present.clamp(min=1e-20)) + order
    soft = (1 - background)[:, :, None] * logits.softmax(2)
    if not ratio:
        return background, soft
    with torch.no_grad():
        hard = present
        for k in range(shape.shape[2]):
            nearer = order[:, :, k : k + 1] > order
            hard = hard * torch.where(nearer, 1 - present[:, :, k : k + 1], 1.0)
    through = soft + (hard - soft).detach()
    return background, ratio * through + (1 - ratio) * soft


def sample(parameters: Tensor) -> Tensor:
    """Draws from a normal distribution given by mean and log-variance."""
    mean, log_var = parameters.chunk(2, -1)
    return mean + (0.5 * log_var).exp() * torch.randn_like(mean)


def logistic(like: Tensor) -> Tensor:
    """Logistic noise."""
    u = torch.rand_like(like).clamp(1e-6, 1 - 1e-6)
    return u.log() - (1 - u).log()


def normal_kl(parameters: Tensor) -> Tensor:
    """From a normal distribution to the standard one."""
    mean, log_var = parameters.chunk(2, -1)
    return 0.5 * (mean.square() + log_var.exp() - log_var - 1).sum()


def presence_kl(tau: Tensor, logit: Tensor) -> Tensor:
    """From the Beta and Bernoulli distributions of presence to their priors."""
    prior, total = ALPHA / logit.shape[1], tau.sum(-1)
    one, two = tau.unbind(-1)
    digamma, lgamma = torch.digamma, torch.lgamma
    rho = (
        lgamma(total)
        - lgamma(one)
        - lgamma(two)
        - math.log(prior)
        + (one - prior) * digamma(one)
        + (two - 1) * digamma(two)
        - (total - prior - 1) * digamma(total)
    )
    kappa = logit.sigmoid()
    presence = (
        digamma(total)
        + kappa * (functional.logsigmoid(logit) - digamma(one))
        + (1 - kappa) * (functional.logsigmoid(-logit) - digamma(two))
    )
    return (rho + presence).sum()


def main() -> None:
    """Serves steps of the case given as JSON; see `benchmarks/train_step.py`."""
    case = json.loads(sys.argv[1])
    torch.set_num_threads(case["threads"])
    torch.manual_seed(0)
    model = Model(case["sizes"])
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4)
    size = case["size"]
    images = 2 * torch.rand(case["batch"], case["views"], 3, size, size) - 1

    def train() -> None:
        optimizer.zero_grad()
        model(images, case["slots"]).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 5.0)
        optimizer.step()

    @torch.no_grad()
    def forward() -> None:
        model(images, case["slots"])

    resident = turns.resident_memory()
    matrix = torch.rand(2048, 2048)
    with FlopCounterMode(display=False) as counter:
        train()
    facts = {
        "parameters": sum(p.numel() for p in model.parameters()),
        "flops": counter.get_total_flops(),
        "resident": resident,
    }
    turns.serve(
        {"train": train, "forward": forward, "matmul": lambda: matrix @ matrix}, facts
    )


if __name__ == "__main__":
    main()
