use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use proptest::prelude::*;

use super::*;

/// Lines after a line with the columns, which each file has.
#[derive(Default)]
struct Table;

impl Records for Table {
    fn whole(&self, bytes: &[u8]) -> usize {
        Lines.whole(bytes)
    }

    fn first(&self, bytes: &[u8]) -> usize {
        Lines.first(bytes)
    }

    fn header(&self, next: &[u8]) -> Vec<u8> {
        format!("columns {}\n", next.first().map_or('-', |byte| char::from(*byte))).into_bytes()
    }
}

/// Appends lines; returns why the file was not renamed, if it was not.
fn append(file: &OutputFile, lines: &str, size: u64, keep: u32) -> Option<String> {
    let rotation = Some(Rotation { size, keep });
    let refused = file.append_records(lines.as_bytes(), &Lines, rotation).unwrap();
    refused.map(|reason| reason.to_string())
}

fn text(path: &Path) -> String {
    fs::read_to_string(path).unwrap()
}

/// The file and its renamed ones, the newest first.
fn texts(path: &Path) -> Vec<String> {
    let paths = std::iter::once(path.to_owned()).chain((1..).map(|number| renamed(path, number)));
    paths.map_while(|path| fs::read_to_string(path).ok()).collect()
}

proptest! {
    #[test]
    fn files_hold_whole_records_up_to_the_size_and_nothing_is_lost(
        // Each new file renames all before it.
        writes in prop::collection::vec(prop::collection::vec(0usize..50, 0..6), 1..12),
        size in 1u64..120,
    ) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("events");
        let file = OutputFile::new(&path);
        let mut all = String::new();
        for (number, lengths) in writes.iter().enumerate() {
            let line = |length: &usize| format!("{}{number}\n", "x".repeat(*length));
            let lines: String = lengths.iter().map(line).collect();
            prop_assert_eq!(append(&file, &lines, size, 10_000), None);
            all += &lines;
        }
        let mut texts = texts(&path);
        prop_assert_eq!(fs::read_dir(folder.path()).unwrap().count(), texts.len());
        texts.reverse();
        prop_assert_eq!(texts.concat(), all);
        for text in &texts {
            prop_assert!(text.is_empty() && texts.len() == 1 || text.ends_with('\n'));
            prop_assert!(text.len() as u64 <= size || text.lines().count() == 1, "{}", text.len());
        }
        // No file ends earlier than it must.
        for pair in texts.windows(2) {
            let next = pair[1].find('\n').unwrap() + 1;
            prop_assert!((pair[0].len() + next) as u64 > size);
        }
    }
}

#[test]
fn the_newest_files_are_kept() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("events");
    let file = OutputFile::new(&path);
    for number in 0..6 {
        assert_eq!(append(&file, &format!("{number}\n"), 2, 3), None);
    }
    assert_eq!(texts(&path), ["5\n", "4\n", "3\n", "2\n"]);
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 4);
}

#[test]
fn each_file_has_the_header_of_its_first_record_and_the_permissions_of_the_first() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("events");
    fs::write(&path, "of an earlier run").unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
    let file = OutputFile::new(&path);
    for records in ["", "a\nb\n", "c\n"] {
        let rotation = Some(Rotation { size: 14, keep: 5 });
        file.append_records(records.as_bytes(), &Table, rotation).unwrap();
    }
    assert_eq!(texts(&path), ["columns c\nc\n", "columns -\na\nb\n"]);
    for path in [path.clone(), renamed(&path, 1)] {
        assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o640);
    }
    // The new file is locked as the old one was.
    let other = OutputFile::new(&path);
    assert_eq!(other.claim().unwrap_err().kind(), io::ErrorKind::ResourceBusy);
    assert!(OutputFile::new(renamed(&path, 1)).claim().is_ok());
}

#[test]
fn a_link_stays_and_the_file_that_it_leads_to_is_renamed() {
    let folder = tempfile::tempdir().unwrap();
    let (link, path) = (folder.path().join("link"), folder.path().join("events"));
    std::os::unix::fs::symlink("events", &link).unwrap();
    let file = OutputFile::new(&link);
    append(&file, "a\nb\n", 2, 5);
    assert!(link.symlink_metadata().unwrap().is_symlink());
    assert_eq!(texts(&path), ["b\n", "a\n"]);
}

#[test]
fn a_file_that_cannot_be_renamed_is_continued_until_it_can() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("events");
    let file = OutputFile::new(&path);
    fs::create_dir(renamed(&path, 1)).unwrap();
    let reason = append(&file, "a\nb\n", 2, 5).unwrap();
    assert!(reason.contains("events.1 is not a file"), "{reason}");
    assert_eq!(append(&file, "", 2, 5), None);
    // The next attempts come after further 2 bytes each.
    assert!(append(&file, "c\n", 2, 5).is_some());
    assert_eq!(text(&path), "a\nb\nc\n");
    fs::remove_dir(renamed(&path, 1)).unwrap();
    assert_eq!(append(&file, "d\n", 2, 5), None);
    assert_eq!(append(&file, "e\n", 2, 5), None);
    assert_eq!(texts(&path).concat().len(), "a\nb\nc\nd\ne\n".len());
    assert_eq!(texts(&path).last().unwrap(), "a\nb\nc\n");
    assert!(!beside(&path).exists());
}

#[test]
fn what_has_taken_the_place_of_a_file_is_not_renamed() {
    let folder = tempfile::tempdir().unwrap();
    let (path, old) = (folder.path().join("events"), folder.path().join("old"));
    let makes: [fn(&Path); 2] = [
        |path| fs::create_dir(path).unwrap(),
        |path| assert!(Command::new("mkfifo").arg(path).status().unwrap().success()),
    ];
    for make in makes {
        let file = OutputFile::new(&path);
        append(&file, "a\n", 2, 5);
        fs::rename(&path, &old).unwrap();
        make(&path);
        assert!(append(&file, "b\n", 2, 5).unwrap().contains("not a file any more"));
        assert!(file.reopen().unwrap_err().to_string().contains("not a file any more"));
        assert_eq!(text(&old), "a\nb\n");
        assert!(!renamed(&path, 1).exists());
        fs::remove_dir(&path).or_else(|_| fs::remove_file(&path)).unwrap();
        // At the next attempt there is nothing in the way.
        assert!(file.reopen().unwrap());
        append(&file, "c\n", 100, 5);
        assert_eq!(text(&path), "c\n");
        fs::remove_file(&path).unwrap();
    }
}

#[test]
fn a_file_that_another_program_has_renamed_is_opened_again() {
    let folder = tempfile::tempdir().unwrap();
    let (path, old) = (folder.path().join("events"), folder.path().join("old"));
    let file = OutputFile::new(&path);
    let append = |records: &str| {
        file.append_records(records.as_bytes(), &Table, None).unwrap();
    };
    append("a\n");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
    assert!(!file.reopen().unwrap(), "it is where it was");
    fs::rename(&path, &old).unwrap();
    append("b\n");
    assert!(file.reopen().unwrap() && !file.reopen().unwrap());
    append("c\n");
    assert_eq!(text(&old), "columns a\na\nb\n");
    assert_eq!(text(&path), "columns c\nc\n");
    assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o600);
    // Another program may have begun the new file.
    fs::rename(&path, &old).unwrap();
    fs::write(&path, "begun\n").unwrap();
    assert!(file.reopen().unwrap());
    append("d\n");
    assert_eq!(text(&path), "begun\ncolumns d\nd\n");
    fs::remove_file(&path).unwrap();
    assert!(file.reopen().unwrap());
    assert_eq!(text(&path), "");
}

#[test]
fn a_file_renamed_before_its_first_record_is_not_emptied() {
    let folder = tempfile::tempdir().unwrap();
    let (path, old) = (folder.path().join("events"), folder.path().join("old"));
    fs::write(&path, "of an earlier run\n").unwrap();
    let file = OutputFile::new(&path);
    file.claim().unwrap();
    fs::rename(&path, &old).unwrap();
    assert!(file.reopen().unwrap());
    append(&file, "a\n", 100, 5);
    assert_eq!(text(&old), "of an earlier run\n");
    assert_eq!(text(&path), "a\n");
}

#[test]
fn pipes_and_devices_are_never_renamed() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("pipe");
    assert!(Command::new("mkfifo").arg(&path).status().unwrap().success());
    let file = OutputFile::new(&path);
    assert!(!file.is_rotatable() && !OutputFile::new("/dev/null").is_rotatable());
    assert!(OutputFile::new(folder.path().join("new")).is_rotatable());
    let reader = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(&path).unwrap();
    assert_eq!(append(&file, "a\nb\nc\n", 2, 5), None);
    assert!(!file.reopen().unwrap());
    assert_eq!(io::read_to_string(io::Read::take(reader, 6)).unwrap(), "a\nb\nc\n");
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
}
