//! The names of devices in chain files.

use thalweg_nf::device::{Launches, Unusable};

use crate::devices::{Device, Listing, devices};
use crate::opencl::WITH_LAUNCHES;

/// Names that a chain file may use, for messages.
const NAMES: &str = "soft, gpu, gpu:1, or a name that thalweg devices lists";

/// The most unfit devices that a message names.
const MOST_NAMED: usize = 2;

/// What a name stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Name {
    /// Threads of this program.
    Soft,
    /// One of the GPUs that can be used, counted from 0.
    Gpu(usize),
    /// A device of OpenCL, by its number.
    OpenCl(usize),
    /// A device of CUDA, by its number.
    Cuda(usize),
}

impl Name {
    /// Reads a name.
    ///
    /// # Errors
    /// When there are no devices of such a name.
    pub(crate) fn parse(at: &str) -> Result<Self, Unusable> {
        let name = match at.split_once(':') {
            None if at == "soft" => Some(Self::Soft),
            None if at == "gpu" => Some(Self::Gpu(0)),
            None => None,
            Some((interface, digits)) => number(digits).and_then(|number| match interface {
                "gpu" => Some(Self::Gpu(number)),
                "opencl" => Some(Self::OpenCl(number)),
                "cuda" => Some(Self::Cuda(number)),
                _ => None,
            }),
        };
        name.ok_or_else(|| Unusable {
            why: format!("unknown device '{at}'"),
            expected: NAMES.to_owned(),
        })
    }
}

/// A number in the one form that a name may have: without a sign and leading zeros.
fn number(digits: &str) -> Option<usize> {
    digits.parse().ok().filter(|number: &usize| number.to_string() == digits)
}

/// Why there is no device of this number, where `all` are there.
pub(crate) fn out_of_range(what: &str, number: usize, interface: &str, all: usize) -> String {
    format!("there is no {what} {number}: {}", there(interface, all))
}

/// How many devices are there.
fn there(interface: &str, all: usize) -> String {
    match all {
        0 => "there is none".to_owned(),
        1 => format!("there is 1, {interface}:0"),
        _ => format!("there are {all}, {interface}:0 to {interface}:{}", all - 1),
    }
}

/// The own name of the GPU of this number, of those that can be used.
///
/// # Errors
/// How many there are; what those lack that cannot be used; or why there is none.
pub(crate) fn gpu(number: usize, launches: Launches) -> Result<String, Unusable> {
    let Listing { devices, without_opencl, without_cuda } = devices();
    let why = [without_opencl, without_cuda].map(|why| why.map(|why| why.to_string()));
    gpu_of((number, launches), &devices, why).map_err(|why| Unusable {
        why,
        expected: "a GPU that is there, or another device that thalweg devices lists".to_owned(),
    })
}

/// As [`gpu`], among these devices; with the reasons for which there are none of OpenCL and of CUDA.
fn gpu_of(
    (number, launches): (usize, Launches),
    all: &[Device],
    [without_opencl, without_cuda]: [Option<String>; 2],
) -> Result<String, String> {
    let gpus = || all.iter().filter(|device| device.kind == "gpu");
    let fit = |launches| gpus().filter(move |gpu| gpu.runs(launches)).collect::<Vec<_>>();
    // Launches that are allowed, and not demanded, are for GPUs that have nothing better.
    let resident = if launches == Launches::Auto { fit(Launches::Never) } else { Vec::new() };
    let fit = if resident.is_empty() { fit(launches) } else { resident };
    let can = if launches == Launches::Never { "run resident kernels" } else { "run launches" };
    if let Some(gpu) = fit.get(number) {
        return Ok(gpu.place.clone());
    }
    if !fit.is_empty() {
        let there = there("gpu", fit.len());
        return Err(format!("there is no GPU {number} that can {can}: {there}"));
    }
    let reasons = gpus().take(MOST_NAMED).map(|gpu| {
        let lacks = gpu.lacks.as_deref().unwrap_or("its driver does not report why");
        let with =
            if gpu.runs(Launches::Auto) { format!("; {WITH_LAUNCHES}") } else { String::new() };
        format!("{} ({}): {lacks}{with}", gpu.place, gpu.name)
    });
    let mut reasons: Vec<_> = reasons.collect();
    if !reasons.is_empty() {
        let more = gpus().count() - reasons.len();
        reasons.extend((more > 0).then(|| format!("and {more} more")));
        return Err(format!("no GPU here can {can}: {}", reasons.join("; ")));
    }
    let opencl = without_opencl.unwrap_or_else(|| "no device that it lists is a GPU".to_owned());
    let cuda = without_cuda.unwrap_or_else(|| "it lists no device".to_owned());
    Err(format!("there is no GPU here; OpenCL: {opencl}; CUDA: {cuda}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::devices::{Residency, SharedMemory};
    use Launches::{Auto, Copied, Never};

    fn device(place: &str, kind: &'static str, lacks: Option<&str>) -> Device {
        Device {
            place: place.into(),
            name: format!("the device {place}"),
            platform: "a platform".into(),
            version: "OpenCL 3.0".into(),
            kind,
            compute_units: 8,
            shared_memory: SharedMemory::Fine,
            atomics: lacks.is_none(),
            residency: if lacks.is_none() { Residency::Resident } else { Residency::LiveMemory },
            lacks: lacks.map(str::to_owned),
        }
    }

    #[test]
    fn a_name_has_one_form() {
        for (at, name) in [
            ("soft", Name::Soft),
            ("gpu", Name::Gpu(0)),
            ("gpu:0", Name::Gpu(0)),
            ("gpu:12", Name::Gpu(12)),
            ("opencl:0", Name::OpenCl(0)),
            ("cuda:3", Name::Cuda(3)),
        ] {
            assert_eq!(Name::parse(at), Ok(name), "{at}");
        }
        for at in [
            "",
            "GPU",
            "cpu",
            "gpu:",
            "gpu:x",
            "gpu:-1",
            "gpu:+1",
            "gpu:01",
            "gpu: 1",
            "opencl",
            "opencl:0:0",
            "soft:0",
            "vax:0",
            "gpu:99999999999999999999999",
        ] {
            let refused = Name::parse(at).unwrap_err();
            assert_eq!(refused.why, format!("unknown device '{at}'"));
            assert!(refused.expected.contains("gpu:1"), "{refused}");
        }
    }

    #[test]
    fn gpus_are_counted_if_they_can_be_used() {
        let all = [
            device("soft", "cpu", None),
            device("opencl:0", "gpu", Some("no atomics")),
            device("opencl:1", "cpu", None),
            device("opencl:2", "gpu", None),
            device("cuda:0", "gpu", None),
        ];
        let gpu = |number| gpu_of((number, Never), &all, [None, None]);
        assert_eq!(gpu(0).as_deref(), Ok("opencl:2"));
        assert_eq!(gpu(1).as_deref(), Ok("cuda:0"));
        assert_eq!(
            gpu(7).unwrap_err(),
            "there is no GPU 7 that can run resident kernels: there are 2, gpu:0 to gpu:1"
        );
        assert!(
            gpu_of((1, Never), &all[..4], [None, None]).unwrap_err().ends_with("there is 1, gpu:0")
        );
    }

    #[test]
    fn with_launches_others_count_if_there_is_none_with_resident_kernels() {
        let unfit = device("opencl:0", "gpu", Some("no atomics"));
        let all = [unfit.clone(), device("opencl:1", "gpu", None)];
        let gpu = |launches, all: &[Device]| gpu_of((0, launches), all, [None, None]);
        assert_eq!(gpu(Auto, &all).as_deref(), Ok("opencl:1"));
        assert_eq!(gpu(Copied, &all).as_deref(), Ok("opencl:0"));
        assert_eq!(gpu(Auto, &all[..1]).as_deref(), Ok("opencl:0"));
        let why = gpu(Never, &all[..1]).unwrap_err();
        assert!(why.contains("no atomics; with launches = \"auto\" in [memory]"), "{why}");
    }

    #[test]
    fn gpus_that_are_there_but_unfit_are_named_with_the_reason() {
        let unfit = |number: usize| device(&format!("opencl:{number}"), "gpu", Some("no atomics"));
        let all: Vec<_> = (0..4).map(unfit).collect();
        assert_eq!(
            gpu_of((0, Never), &all[..1], [None, None]).unwrap_err(),
            format!(
                "no GPU here can run resident kernels: opencl:0 (the device opencl:0): no atomics; {WITH_LAUNCHES}"
            )
        );
        let many = gpu_of((0, Never), &all, [None, None]).unwrap_err();
        let second =
            format!("opencl:1 (the device opencl:1): no atomics; {WITH_LAUNCHES}; and 2 more");
        assert!(many.ends_with(&second), "{many}");
    }

    #[test]
    fn without_a_gpu_both_interfaces_have_their_reason() {
        let pocl = [device("soft", "cpu", None), device("opencl:0", "cpu", None)];
        let cuda = || Some("no library".to_owned());
        assert_eq!(
            gpu_of((0, Never), &pocl, [None, cuda()]).unwrap_err(),
            "there is no GPU here; OpenCL: no device that it lists is a GPU; CUDA: no library"
        );
        assert_eq!(
            gpu_of((1, Never), &pocl[..1], [Some("no driver".into()), cuda()]).unwrap_err(),
            "there is no GPU here; OpenCL: no driver; CUDA: no library"
        );
    }

    #[test]
    fn a_number_that_is_too_large_comes_with_those_that_are_there() {
        let of = |all| out_of_range("OpenCL device", 7, "opencl", all);
        assert_eq!(of(0), "there is no OpenCL device 7: there is none");
        assert_eq!(of(1), "there is no OpenCL device 7: there is 1, opencl:0");
        assert_eq!(of(3), "there is no OpenCL device 7: there are 3, opencl:0 to opencl:2");
    }
}
