use super::*;

const OPTIONS: PcapPortOptions = PcapPortOptions { rx: None, tx: None, index: 5, mtu: 1500, paced: false };

fn capture_of(directory: &Path, packets: &[(u64, &[u8])]) -> PathBuf {
    let path = directory.join("in.pcap");
    let mut writer = create_capture(&path).expect("the directory is writable");
    for (millis, bytes) in packets {
        let time = Duration::from_secs(1_000) + Duration::from_millis(*millis);
        writer.write_packet(&PcapPacket::new(time, bytes.len() as u32, bytes)).expect("the file takes it");
    }
    path
}

#[test]
fn what_is_sent_can_be_read_back_as_it_was_received() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let rx = capture_of(directory.path(), &[(0, b"first packet"), (1, b"second")]);
    let tx = directory.path().join("out.pcap");
    let mut pool = MemPool::new(8, 64, 16);
    let options = PcapPortOptions { rx: Some(rx.clone()), tx: Some(tx.clone()), ..OPTIONS };
    let mut port = PcapPort::open("files", options, pool.handle(128)).expect("both files open");
    let control = port.control();
    assert_eq!(control.remaining(), 2);
    let mut burst = Vec::with_capacity(8);
    for millis in 0..2 {
        control.set_now(Duration::from_millis(millis));
        assert_eq!(port.rx_burst(&mut burst, 1), 1);
        assert_eq!(burst[0].port(), 5);
        assert_eq!(port.tx_burst(&mut burst), 1);
    }
    assert_eq!((port.rx_burst(&mut burst, 8), control.remaining()), (0, 0));
    assert_eq!(port.stats().tx_bytes, 18);
    drop(port);
    assert_eq!(read_capture(&tx).expect("a whole file"), read_capture(&rx).expect("a whole file"));
    assert_eq!(pool.outstanding(), 0);
    assert!(pool.alloc().map(|frame| pool.free(frame)).is_some());
}

#[test]
fn a_paced_port_holds_a_packet_until_its_time() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let rx = capture_of(directory.path(), &[(0, b"now"), (10, b"later")]);
    let mut pool = MemPool::new(4, 64, 0);
    let options = PcapPortOptions { rx: Some(rx), paced: true, ..OPTIONS };
    let mut port = PcapPort::open("files", options, pool.handle(128)).expect("the file opens");
    let mut burst = Vec::with_capacity(8);
    assert_eq!(port.rx_burst(&mut burst, 8), 1);
    port.control().set_now(Duration::from_millis(9));
    assert_eq!(port.rx_burst(&mut burst, 8), 0);
    port.control().set_now(Duration::from_millis(10));
    assert_eq!(port.rx_burst(&mut burst, 8), 1);
    pool.free_all(&mut burst);
}

#[test]
fn an_oversized_packet_is_counted_and_an_empty_pool_loses_nothing() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let rx = capture_of(directory.path(), &[(0, &[1; 65]), (0, &[2; 64]), (0, &[3; 64])]);
    let mut pool = MemPool::new(1, 64, 0);
    let options = PcapPortOptions { rx: Some(rx), ..OPTIONS };
    let mut port = PcapPort::open("files", options, pool.handle(128)).expect("the file opens");
    let mut burst = Vec::with_capacity(8);
    assert_eq!(port.rx_burst(&mut burst, 8), 1, "one frame, so one packet");
    assert_eq!(burst[0].bytes(), [2; 64]);
    assert_eq!((port.stats().rx_errors, port.stats().rx_nombuf), (1, 1));
    port.tx_burst(&mut burst);
    assert_eq!(port.rx_burst(&mut burst, 8), 1);
    assert_eq!(burst[0].bytes(), [3; 64]);
    pool.free_all(&mut burst);
    assert_eq!(pool.outstanding(), 0);
}

#[test]
fn a_missing_file_is_named_in_the_error() {
    let options = PcapPortOptions { rx: Some(PathBuf::from("no/such/file.pcap")), ..OPTIONS };
    let Err(error) = PcapPort::open("files", options, MemPool::new(1, 64, 0)) else {
        panic!("there is no such file")
    };
    assert!(error.to_string().contains("no/such/file.pcap: cannot open it"), "{error}");
}
