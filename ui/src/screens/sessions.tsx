import { useQueryClient } from "@tanstack/react-query";
import { useState } from "react";

import { apiFor, taken } from "../api/client";
import { useRead } from "../api/read";
import { SESSION } from "../api/session";
import { Badge } from "../ui/badge";
import { Button } from "../ui/button";
import { Dialog } from "../ui/float";
import { Actions } from "../ui/form";
import { Fault, Skeleton } from "../ui/panel";
import { Line, Time } from "../ui/text";

/** Where one is signed in. */
export function Sessions({ onClose }: { onClose: () => void }) {
  const queries = useQueryClient();
  const [failed, setFailed] = useState<unknown>(null);
  const { data, error, refetch } = useRead({ queryKey: ["sessions"], queryFn: () => taken(apiFor(null).GET("/api/v1/sessions")), staleTime: 0 });
  const end = async (id: string, current: boolean) => {
    try {
      await taken(apiFor(null).DELETE("/api/v1/sessions/{session_id}", { params: { path: { session_id: id } } }));
      if (current) queries.setQueryData(SESSION, null);
      else await refetch();
    } catch (caught) {
      setFailed(caught);
    }
  };
  const endAll = async () => {
    try {
      await taken(apiFor(null).DELETE("/api/v1/sessions"));
      queries.setQueryData(SESSION, null);
    } catch (caught) {
      setFailed(caught);
    }
  };
  return (
    <Dialog open onClose={onClose} title="Your sessions" lead="The browsers that are signed in as you." wide>
      {error ? (
        <Fault error={error} retry={() => void refetch()} />
      ) : !data ? (
        <Skeleton />
      ) : (
        <table>
          <thead>
            <tr>
              <th>Browser</th>
              <th>Address</th>
              <th>Signed in</th>
              <th>Last used</th>
              <th>
                <span className="visually-hidden">Actions</span>
              </th>
            </tr>
          </thead>
          <tbody>
            {data.items.map((each) => (
              <tr key={each.id}>
                <td>
                  <Line length={60}>{each.user_agent ?? "unknown"}</Line> {each.current && <Badge tone="succeeded">this one</Badge>}
                </td>
                <td>{each.address ?? ""}</td>
                <td>
                  <Time at={each.created_at} />
                </td>
                <td>
                  <Time at={each.last_seen_at} as="relative" />
                </td>
                <td>
                  <Button small danger onClick={() => void end(each.id, each.current)}>
                    End
                  </Button>
                </td>
              </tr>
            ))}
          </tbody>
        </table>
      )}
      {failed !== null && <Fault error={failed} />}
      <Actions>
        <Button onClick={onClose}>Close</Button>
        <Button danger onClick={() => void endAll()}>
          Sign out everywhere
        </Button>
      </Actions>
    </Dialog>
  );
}
