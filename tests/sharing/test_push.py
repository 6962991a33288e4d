from hub_server import Server
import duetto, json
from duetto.runs.run import Run


def test_it(server: Server, run: Run, tmp_path):
    p = duetto.push(run, "me/run", episodes=2)
    print(p)
    print(server.asked)
    repo = server.repositories["me/run"]
    print(list(repo.files()))
    print(repo.files()["README.md"].decode())
    print(repo.files()["config.yaml"].decode())
    server.asked.clear()
    found = duetto.pull("me/run", tmp_path / "got")
    print(found, found.notices, server.asked)
    print(found.evaluate(episodes=2))
    found.resume(steps=80, without_memory=True)
