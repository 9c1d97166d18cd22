"""LangGraph: a graph of two nodes, the model and the world."""

from langchain_core.messages import HumanMessage
from langchain_openai import ChatOpenAI
from langgraph.graph import END, START, MessagesState, StateGraph


class State(MessagesState):
    done: bool


async def agent(task, client):
    model = ChatOpenAI(model="policy", base_url=client.base_url, api_key=client.api_key)

    async def think(state):
        return {"messages": [await model.ainvoke(state["messages"])]}

    async def act(state):
        observation, done = await client.step(state["messages"][-1].text)
        return {"messages": [HumanMessage(observation)], "done": done}

    graph = StateGraph(State).add_node(think).add_node(act).add_edge(START, "think").add_edge("think", "act")
    graph.add_conditional_edges("act", lambda state: END if state["done"] else "think")
    first = HumanMessage(await client.reset())
    await graph.compile().ainvoke({"messages": [first], "done": False}, {"recursion_limit": 1000})
