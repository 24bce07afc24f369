// What the sensors of NVIDIA's GPUs need of NVML, in its place for tests.
// GPUS: for each GPU whether it has a counter (-1: it is lost), and milliwatts (0: it has no meter).

static const struct { int counter; unsigned milliwatts; } gpus[] = { GPUS };

enum { SUCCESS = 0, NOT_SUPPORTED = 3, GPU_IS_LOST = 15 };

static unsigned long long millijoules;

int nvmlInit_v2(void) { return SUCCESS; }
int nvmlShutdown(void) { return SUCCESS; }

int nvmlDeviceGetCount_v2(unsigned *count) {
    *count = sizeof gpus / sizeof *gpus;
    return SUCCESS;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **device) {
    *device = (void *)&gpus[index];
    return SUCCESS;
}

int nvmlDeviceGetName(const void *device, char *name, unsigned length) {
    (void)length;
    const char text[] = "GPU 0";
    for (unsigned at = 0; at < sizeof text; at++) {
        name[at] = text[at];
    }
    name[4] += (const char *)device - (const char *)gpus == 0 ? 0 : 1;
    return SUCCESS;
}

int nvmlDeviceGetTotalEnergyConsumption(const int *device, unsigned long long *now) {
    if (*device < 0) {
        return GPU_IS_LOST;
    }
    *now = millijoules += 1000;
    return *device ? SUCCESS : NOT_SUPPORTED;
}

int nvmlDeviceGetPowerUsage(const int *device, unsigned *now) {
    *now = device[1];
    return device[1] ? SUCCESS : NOT_SUPPORTED;
}
