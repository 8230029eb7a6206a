"""The settings of pip, as uv gets them."""

from pathlib import Path

from deploy.install_packages import uv_settings


def test_uv_gets_the_registry_certificate_and_limits_of_pip() -> None:
    told = (
        "global.index-url='https://mirror.test/simple'\nglobal.cert='/etc/ca.pem'\n"
        ":env:.default-timeout='180'\ninstall.no-index='true'\nuser.proxy='http://proxy.test:1'\n"
    )
    assert uv_settings(told) == {
        "UV_DEFAULT_INDEX": "https://mirror.test/simple", "SSL_CERT_FILE": "/etc/ca.pem", "UV_HTTP_TIMEOUT": "180",
        "UV_NO_INDEX": "true", "ALL_PROXY": "http://proxy.test:1",
    }  # fmt: skip


def test_uv_gets_several_values_with_its_own_separators(tmp_path: Path) -> None:
    told = f":env:.find-links='{tmp_path} https://b.test'\nglobal.extra-index-url='https://c.test\\nhttps://d.test'\n"
    assert uv_settings(told) == {
        "UV_FIND_LINKS": f"{tmp_path},https://b.test",
        "UV_INDEX": "https://c.test https://d.test",
    }


def test_folder_that_does_not_exist_is_left_out_because_uv_refuses_it(tmp_path: Path) -> None:
    assert uv_settings(f"global.find-links='{tmp_path}/none'\n") == {}


def test_later_section_of_pip_wins_and_other_settings_are_left_out() -> None:
    told = "global.index-url='https://a.test'\nsite.index-url='https://b.test'\n:env:.disable-pip-version-check='1'\n\n"
    assert uv_settings(told) == {"UV_DEFAULT_INDEX": "https://b.test"}
